-- Who owned a stream from one position to another, as the gateway announced it. Nothing is proven here.
with steps as (
    select space, stream_id, policy, ended_position, unnest(owners) as step
    from streams
)
select
    space,
    stream_id,
    policy,
    step.owner as owner,
    step.position as from_position,
    step.time as from_time,
    coalesce(
        lead(step.position) over stream_order, ended_position, 9223372036854775807
    ) as to_position,
    lag(step.owner) over stream_order as previous_owner
from steps
window stream_order as (partition by space, stream_id order by step.position)
