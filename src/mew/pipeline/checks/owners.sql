-- Each owner of a stream was present and got it by opening it, from the owner before, or because that owner had left.
select
    s.space,
    s.from_position as position,
    s.from_time as time,
    'stream ' || s.stream_id as what,
    s.owner || ' became the owner, but ' || s.problem as message
from owner_steps s
where
    s.problem is not null
    and not exists (
        select 1 from unproven u
        where u.space = s.space and s.from_position > u.from_position and s.from_position < u.to_position
    )
