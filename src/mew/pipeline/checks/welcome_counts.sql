-- Each welcome counts the frames that its streams had accepted before it.
with claims as (
    select space, position, time, participant, unnest(frame_counts, recursive := true)
    from system_records
    where event = 'welcome'
),
counted as (
    select
        c.space,
        c.position,
        c.time,
        c.participant,
        c.stream_id,
        c.frames,
        bool_or(f.frame_number = c.frames and f.position < c.position) as has_last,
        bool_or(f.frame_number = c.frames + 1 and f.position < c.position) as has_more
    from claims c
    left join (
        select space, stream_id, position, frame_number, frame_number as claimed from frames
        union all
        select space, stream_id, position, frame_number, frame_number - 1 from frames
    ) f on f.space = c.space and f.stream_id = c.stream_id and f.claimed = c.frames
    group by all
)
select
    space,
    position,
    time,
    'welcome of ' || participant as what,
    'it counts ' || frames || ' frames of ' || stream_id || ', and the stream had '
    || case when coalesce(has_more, false) then 'more' else 'less' end as message
from counted n
where
    (coalesce(has_more, false) or (frames > 0 and not coalesce(has_last, false)))
    -- Frames before the first record of the tables, or among missing records, are not known.
    and not exists (select 1 from unproven u where u.space = n.space and u.from_position < n.position)
