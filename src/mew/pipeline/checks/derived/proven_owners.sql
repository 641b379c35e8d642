-- Who owned a stream from one position to another, proven: nothing speaks against this owner and all before it.
select space, stream_id, owner, from_position, to_position
from (
    select
        *,
        bool_and(problem is null) over (
            partition by space, stream_id order by from_position rows unbounded preceding
        ) as is_proven
    from owner_steps
)
where is_proven
