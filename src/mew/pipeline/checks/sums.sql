-- The frames, the quarantine and the sums by stream, writer, second and minute agree.
with flowed as (
    select
        space,
        stream_id,
        count(*) filter (kind = 'frame') as frames,
        count(*) filter (kind = 'data') as data,
        sum(size)::bigint as bytes,
        count(*) filter (not valid) as invalid,
        max(position) as position,
        max(time) as time
    from frames
    group by all
),
of_streams as (
    select space, stream_id, sum(frames) as frames, sum(data) as data, sum(bytes) as bytes
    from streams
    group by all
),
of_windows as (
    select
        space,
        stream_id,
        sum(frames) filter (seconds = 1) as frames_in_seconds,
        sum(frames) filter (seconds = 60) as frames_in_minutes,
        sum(bytes) filter (seconds = 1) as bytes_in_seconds,
        sum(bytes) filter (seconds = 60) as bytes_in_minutes,
        sum(invalid) filter (seconds = 60) as invalid_in_minutes
    from stream_activity
    group by all
),
quarantined as (
    select space, stream_id, count(*) as invalid from quarantine group by all
),
of_writers as (
    select
        space,
        writer as participant,
        count(*) as frames,
        sum(size)::bigint as bytes,
        max(position) as position,
        max(time) as time
    from frames
    group by all
),
of_participants as (
    select space, participant, sum(frames) as frames, sum(bytes) as bytes from participant_activity group by all
),
compared as (
    select
        f.space,
        f.position,
        f.time,
        'stream ' || f.stream_id as what,
        unnest([
            {'name': 'streams.frames', 'sum': coalesce(s.frames, 0), 'rows': f.frames},
            {'name': 'streams.data', 'sum': coalesce(s.data, 0), 'rows': f.data},
            {'name': 'streams.bytes', 'sum': coalesce(s.bytes, 0), 'rows': f.bytes},
            {'name': 'stream_activity.frames of seconds', 'sum': coalesce(w.frames_in_seconds, 0),
             'rows': f.frames + f.data},
            {'name': 'stream_activity.frames of minutes', 'sum': coalesce(w.frames_in_minutes, 0),
             'rows': f.frames + f.data},
            {'name': 'stream_activity.bytes of seconds', 'sum': coalesce(w.bytes_in_seconds, 0), 'rows': f.bytes},
            {'name': 'stream_activity.bytes of minutes', 'sum': coalesce(w.bytes_in_minutes, 0), 'rows': f.bytes},
            {'name': 'stream_activity.invalid of minutes', 'sum': coalesce(w.invalid_in_minutes, 0),
             'rows': f.invalid},
            {'name': 'the rows of quarantine', 'sum': coalesce(q.invalid, 0), 'rows': f.invalid}
        ]) as pair
    from flowed f
    left join of_streams s on s.space = f.space and s.stream_id = f.stream_id
    left join of_windows w on w.space = f.space and w.stream_id = f.stream_id
    left join quarantined q on q.space = f.space and q.stream_id = f.stream_id
    union all
    select
        f.space,
        f.position,
        f.time,
        'participant ' || f.participant,
        unnest([
            {'name': 'participant_activity.frames', 'sum': coalesce(p.frames, 0), 'rows': f.frames},
            {'name': 'participant_activity.bytes', 'sum': coalesce(p.bytes, 0), 'rows': f.bytes}
        ])
    from of_writers f
    left join of_participants p on p.space = f.space and p.participant = f.participant
    union all
    select
        s.space,
        s.position,
        s.time,
        'stream ' || s.stream_id,
        {'name': 'streams.frames and streams.data', 'sum': s.frames + s.data, 'rows': 0}
    from streams s
    where s.frames + s.data > 0 and not exists (
        select 1 from flowed f where f.space = s.space and f.stream_id = s.stream_id
    )
)
select
    space,
    position,
    time,
    what,
    pair.name || ' gives ' || pair.sum || ', and the rows of frames give ' || pair.rows as message
from compared
where pair.sum <> pair.rows
