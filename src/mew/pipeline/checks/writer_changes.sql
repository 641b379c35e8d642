-- The sender of each change of writers or owner owned the stream, and only the named participant lost its access.
select
    r.space,
    r.position,
    r.time,
    r.kind || ' on ' || r.stream_id as what,
    r.sender || ' did not own the stream' as message
from requests r
asof left join proven_owners o
    on o.space = r.space and o.stream_id = r.stream_id and r.position > o.from_position
where
    r.kind in ('stream/grant-write', 'stream/revoke-write', 'stream/transfer-ownership')
    and (o.owner is distinct from r.sender or r.position > o.to_position)
    and not exists (
        select 1 from unproven u where u.space = r.space and r.position > u.from_position and r.position < u.to_position
    )
union all
select
    a.space,
    a.position,
    a.time,
    'stream ' || a.stream_id as what,
    a.subject || ' lost its write access, although it was present and no accepted request asked for it'
from answers a
asof join presences p
    on p.space = a.space and p.participant = a.subject and a.position > p.from_position
where
    a.kind = 'stream/write-revoked' and a.request_position is null and a.position < p.to_position
    and not exists (
        select 1 from unproven u where u.space = a.space and a.position > u.from_position and a.position < u.to_position
    )
union all
select
    w.space,
    w.to_position,
    w.to_time,
    'stream ' || w.stream_id as what,
    w.participant || ' lost its access by a change that names ' || coalesce(a.subject, '')
from stream_access w
join answers a on a.space = w.space and a.position = w.to_position and a.stream_id = w.stream_id
where
    w.participant is distinct from a.subject
    and not (a.kind = 'stream/ownership-transferred' and w.participant is not distinct from a.previous_owner)
    and a.kind in ('stream/write-granted', 'stream/write-revoked', 'stream/ownership-transferred')
