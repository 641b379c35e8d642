-- Ranges of positions in which nothing can be proven: records before them are not in the tables. A checkpoint ends each.
with checkpoints as (
    select space, position from system_records where event = 'checkpoint'
),
unknown_beginnings as (
    select space, min(position) as position
    from (select space, position from system_records union all select space, position from envelopes)
    group by space
    having min(position) > 0
),
missing as (
    select space, before as from_position from order_breaks where position > before + 1
    union all
    select space, -1 from unknown_beginnings
)
select
    m.space,
    m.from_position,
    coalesce(min(c.position), 9223372036854775807) as to_position
from missing m
left join checkpoints c on c.space = m.space and c.position > m.from_position
group by all
