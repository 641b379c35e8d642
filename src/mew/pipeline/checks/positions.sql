-- Every position from the first to the last has one record.
select
    space,
    position,
    time,
    'record ' || position as what,
    case
        when position = before then 'there are two records at this position'
        else 'the records from ' || (before + 1) || ' to ' || (position - 1) || ' are missing'
    end as message
from order_breaks b
where
    position <> before + 1
    -- Where the journal could not be written for a time, a checkpoint follows the gap.
    and not exists (
        select 1 from system_records k
        where k.space = b.space and k.position = b.position and k.event = 'checkpoint' and b.position > b.before + 1
    )
