-- Places where the order of a space breaks: a position follows that is not the next one, or an earlier time follows.
with records as (
    select space, position, time from envelopes
    union all
    select space, position, time from system_records
    union all
    select space, position, time from frames
),
ordered as (
    select
        space,
        position,
        time,
        lag(position) over follows as before,
        lag(time) over follows as time_before
    from records
    window follows as (partition by space order by position)
)
select * from ordered where position <> before + 1 or time < time_before
