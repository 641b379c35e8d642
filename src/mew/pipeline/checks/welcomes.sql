-- Each welcome equals the state that the records before it give; the fold compares it, byte for byte.
select
    space,
    position,
    time,
    'welcome of ' || participant as what,
    'it differs from the state rebuilt at its position in: ' || difference as message
from system_records w
where
    event = 'welcome' and difference is not null
    and not exists (
        select 1 from unproven u where u.space = w.space and w.position > u.from_position and w.position < u.to_position
    )
