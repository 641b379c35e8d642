-- Each write access that is not ownership, and what speaks against it; null if an owner asked for it and may do so.
with granted as (
    select * from stream_access where role = 'writer'
),
revocations as (
    select space, stream_id, subject, position from requests where kind = 'stream/revoke-write'
),
departures as (
    select space, participant, to_position
    from presences
    where left_time is not null and coalesce(reason, '') not in ('restart', 'checkpoint')
)
select
    w.space,
    w.stream_id,
    w.participant,
    w.from_position,
    w.from_time,
    least(
        coalesce(w.to_position, 9223372036854775807),
        coalesce(r.position, 9223372036854775807),
        coalesce(d.to_position, 9223372036854775807)
    ) as to_position,
    a.request_position,
    case
        when w.why = 'checkpoint' then null
        when a.kind is distinct from 'stream/write-granted' then w.why || ' grants nothing'
        when a.request_position is null then 'no accepted stream/grant-write asked for it'
        when a.requested_stream is distinct from w.stream_id
            then 'the request is about the stream ' || coalesce(a.requested_stream, '')
        when a.requested_subject is distinct from w.participant
            then 'the request names ' || coalesce(a.requested_subject, '')
        when o.owner is distinct from a.sender or a.request_position > o.to_position
            then a.sender || ', who asked for it, did not own the stream'
        when p.participant is null or a.request_position > p.to_position then 'it was not present'
    end as problem
from granted w
left join answers a on a.space = w.space and a.position = w.from_position and a.stream_id = w.stream_id
asof left join claimed_owners o
    on o.space = w.space and o.stream_id = w.stream_id and a.request_position > o.from_position
asof left join presences p
    on p.space = w.space and p.participant = w.participant and a.request_position > p.from_position
asof left join revocations r
    on
        r.space = w.space and r.stream_id = w.stream_id and r.subject = w.participant
        and w.from_position < r.position
asof left join departures d
    on d.space = w.space and d.participant = w.participant and w.from_position < d.to_position
