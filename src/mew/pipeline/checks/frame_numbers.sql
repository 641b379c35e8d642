-- The frames of each stream are numbered from 1, in the order of their positions, without a gap.
with numbered as (
    select
        space,
        stream_id,
        position,
        time,
        frame_number,
        lag(frame_number) over frame_order as number_before,
        lag(position) over frame_order as position_before
    from frames
    window frame_order as (partition by space, stream_id order by position)
)
select
    n.space,
    n.position,
    n.time,
    'frame ' || n.frame_number || ' of ' || n.stream_id as what,
    case
        when n.number_before is null then 'the first frame of its stream has this number'
        else 'it follows frame ' || n.number_before
    end as message
from numbered n
where
    n.frame_number <> coalesce(n.number_before, 0) + 1
    -- Records between the two frames are missing, or the stream is older than the tables.
    and not exists (
        select 1 from unproven u
        where u.space = n.space and u.from_position < n.position and u.from_position >= coalesce(n.position_before, -1)
    )
