-- Accepted envelopes of participants, and what speaks against the capability that allowed each; null if nothing does.
with sent as (
    select *
    from envelopes
    where accepted and participant <> 'system:gateway' and kind <> 'system/heartbeat'
),
grant_ends as (
    select
        space,
        position,
        'grant:' || envelope_id as source,
        payload ->> '$.recipient' as recipient,
        time + (payload ->> '$.timeout_seconds')::double * interval 1 second as ends
    from envelopes
    where accepted and kind = 'capability/grant' and (payload ->> '$.timeout_seconds') is not null
),
located as (
    select
        e.*,
        h.capability is not null and coalesce(h.to_position, 9223372036854775807) >= e.position as is_held,
        g.ends is not null and e.time >= g.ends as is_over,
        o.owner is not null and e.position <= o.to_position as is_owner
    from sent e
    asof left join capabilities h
        on
            h.space = e.space and h.participant = e.participant and h.capability = e.capability
            and e.position > h.from_position
    asof left join proven_owners o on o.space = e.space and o.stream_id = e.stream_id and e.position > o.from_position
        and e.participant = o.owner
    left join grant_ends g
        on g.space = h.space and g.source = h.source and g.recipient = h.participant and g.position = h.from_position
)
select
    space,
    position,
    time,
    participant,
    kind,
    case
        when
            kind in (
                'stream/ready', 'stream/gap', 'stream/write-granted', 'stream/write-revoked',
                'stream/ownership-transferred', 'space/invite-ack', 'mcp/proposal-closed'
            )
            or (kind like 'system/%' and kind <> 'system/join')
            then 'only the gateway sends this kind'
        when capability is not null and not is_held
            then 'it did not have the capability ' || capability || ' at this position'
        when capability is not null and is_over then 'the grant of the capability ' || capability || ' had ended'
        when capability is not null and not capability_fits
            then 'the capability ' || capability || ' does not match the envelope'
        when capability is not null or kind in ('mcp/withdraw', 'mcp/approve') then null
        when kind in ('stream/grant-write', 'stream/revoke-write', 'stream/transfer-ownership') then null
        when
            kind in ('stream/start', 'stream/close', 'stream/complete', 'stream/error')
            and (is_owner or coalesce(capability_fits, false))
            then null
        when kind in ('stream/start', 'stream/close', 'stream/complete', 'stream/error')
            then 'it did not own the stream, and no capability of it allows this'
        else 'no capability allowed it'
    end as problem
from located
