-- Each checkpoint equals the state that the records before it give; the fold compares it.
select
    space,
    position,
    time,
    'checkpoint' as what,
    'it differs from the state rebuilt at its position' as message
from system_records c
where
    event = 'checkpoint' and difference is not null
    -- Records before it are missing, so the state that it has cannot be rebuilt.
    and not exists (select 1 from unproven u where u.space = c.space and u.to_position = c.position)
