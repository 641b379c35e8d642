-- The frames that a reader is said to have missed existed, are counted right, and are missed once.
with numbered as (
    select
        g.*,
        max(last) over (
            partition by space, reader, stream_id order by position
            rows between unbounded preceding and 1 preceding
        ) as last_before
    from reader_gaps g
),
located as (
    select n.*, f.position as last_frame_position
    from numbered n
    left join (select space, stream_id, frame_number, position from frames) f
        on f.space = n.space and f.stream_id = n.stream_id and f.frame_number = n.last
)
select
    space,
    position,
    time,
    'frames ' || first || ' to ' || last || ' of ' || stream_id || ', missed by ' || reader as what,
    case
        when not (1 <= first and first <= last) then 'the first number is after the last'
        when not (1 <= dropped and dropped <= last - first + 1) then dropped || ' of them cannot be'
        when first <= last_before then 'frame ' || last_before || ' was reported as missed before'
        else 'the stream had no frame ' || last || ' at this position'
    end as message
from located g
where
    not (1 <= first and first <= last and 1 <= dropped and dropped <= last - first + 1)
    or first <= last_before
    or (
        coalesce(last_frame_position, 9223372036854775807) > position
        and not exists (select 1 from unproven u where u.space = g.space and u.from_position < g.position)
    )
