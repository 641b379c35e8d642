-- Who could write to a stream from one position to another, proven: as owner, or by a grant of an owner.
select space, stream_id, owner as participant, from_position, to_position from proven_owners
union all
select g.space, g.stream_id, g.participant, g.from_position, g.to_position
from write_grants g
where
    g.problem is null
    and (
        g.request_position is null
        or exists (
            select 1 from proven_owners o
            where
                o.space = g.space and o.stream_id = g.stream_id
                and g.request_position > o.from_position and g.request_position <= o.to_position
        )
    )
