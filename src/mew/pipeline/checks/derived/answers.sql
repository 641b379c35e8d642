-- Changes of streams that the gateway announced, each with the request that it answers. A request has one answer.
with announced as (
    select
        space,
        position,
        time,
        kind,
        coalesce(payload ->> '$.stream_id', payload ->> '$.stream.stream_id') as stream_id,
        coalesce(payload ->> '$.participant_id', payload ->> '$.new_owner') as subject,
        payload ->> '$.previous_owner' as previous_owner,
        payload ->> '$.reason' as reason,
        correlation_id[1] as request_id,
        case kind
            when 'stream/open' then 'stream/request'
            when 'stream/ready' then 'stream/announce'
            when 'stream/write-granted' then 'stream/grant-write'
            when 'stream/write-revoked' then 'stream/revoke-write'
            when 'stream/ownership-transferred' then 'stream/transfer-ownership'
        end as request_kind
    from envelopes
    where
        accepted
        and participant = 'system:gateway'
        and kind in (
            'stream/open', 'stream/ready', 'stream/write-granted', 'stream/write-revoked',
            'stream/ownership-transferred'
        )
),
matched as (
    select
        a.*,
        r.position as request_position,
        r.sender,
        r.stream_id as requested_stream,
        r.subject as requested_subject,
        row_number() over (partition by a.space, a.kind, r.position order by a.position) as number
    from announced a
    asof left join requests r
        on a.space = r.space and a.request_id = r.envelope_id and a.request_kind = r.kind and a.position > r.position
)
select
    * exclude (number, request_position),
    case when number = 1 then request_position end as request_position
from matched
