-- Each time that a stream got an owner, and what speaks against it; null if it was opened, handed over, or inherited.
with located as (
    select
        o.*,
        a.kind as answer_kind,
        a.request_position,
        a.sender,
        a.requested_stream,
        a.requested_subject,
        coalesce(o.policy ->> '$', c.policy) as leave_policy,
        c.grace_seconds,
        k.position is not null as is_given,
        coalesce(a.request_position, o.from_position) as asked_position
    from claimed_owners o
    left join answers a on a.space = o.space and a.position = o.from_position and a.stream_id = o.stream_id
    left join (select space, position from system_records where event = 'checkpoint') k
        on k.space = o.space and k.position = o.from_position
    asof left join configurations c on c.space = o.space and o.from_position > c.from_position
),
leavers as (
    select space, participant, min(from_position) as from_position
    from (
        select space, participant, to_position as from_position
        from presences
        where anonymous or reason = 'kicked'
    )
    group by all
),
judged as (
    select
        l.*,
        p.participant is not null and l.asked_position < p.to_position as is_present,
        b.participant is not null and l.from_position < b.to_position as is_previous_present,
        b.left_time as previous_left,
        exists (
            select 1 from leavers g
            where g.space = l.space and g.participant = l.previous_owner and g.from_position < l.from_position
        )
        or not exists (
            select 1 from capabilities h
            where
                h.space = l.space and h.participant = l.previous_owner
                and h.from_position < l.from_position
                and coalesce(h.to_position, 9223372036854775807) > l.from_position
        ) as is_gone_for_good,
        g.participant is not null and g.to_position >= l.from_position and g.problem is null as is_writer
    from located l
    asof left join presences p
        on p.space = l.space and p.participant = l.owner and l.asked_position > p.from_position
    asof left join presences b
        on b.space = l.space and b.participant = l.previous_owner and l.from_position > b.from_position
    asof left join write_grants g
        on
            g.space = l.space and g.stream_id = l.stream_id and g.participant = l.owner
            and l.from_position > g.from_position
)
select
    space,
    stream_id,
    owner,
    from_position,
    from_time,
    to_position,
    previous_owner,
    case
        when is_given then null
        when previous_owner is null and answer_kind is null then 'the gateway announced no opening of it'
        when previous_owner is null and answer_kind not in ('stream/open', 'stream/ready')
            then answer_kind || ' opens no stream'
        when previous_owner is null and request_position is null
            then 'no accepted stream/request or stream/announce asked for it'
        when previous_owner is null and sender <> owner then sender || ' asked for it'
        when previous_owner is not null and answer_kind is distinct from 'stream/ownership-transferred'
            then 'the gateway announced no change of its owner'
        when not is_present then 'it was not present'
        when previous_owner is null then null
        when request_position is not null and sender <> previous_owner
            then sender || ', who asked for it, did not own the stream'
        when request_position is not null and requested_stream is distinct from stream_id
            then 'the request is about stream ' || coalesce(requested_stream, '')
        when request_position is not null and requested_subject is distinct from owner
            then 'the request names ' || coalesce(requested_subject, '')
        when request_position is not null then null
        when is_previous_present
            then previous_owner || ' was present, and no accepted request asked for it'
        when leave_policy = 'close' then 'the stream ends when its owner leaves'
        when leave_policy = 'keep' and not is_gone_for_good then 'the stream waits for its owner'
        when not is_gone_for_good and from_time < previous_left + grace_seconds * interval 1 second
            then 'its owner still had time to return'
        when not is_writer then 'it had no write access before'
    end as problem
from judged
