-- The first and the last frame of each writer on a stream within 4,096 positions. Few rows stand for many frames.
select
    space,
    stream_id,
    writer,
    position // 4096 as block,
    min(position) as first_position,
    max(position) as last_position
from frames
group by all
