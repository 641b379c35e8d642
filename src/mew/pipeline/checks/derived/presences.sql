-- From which position to which a participant was present. A position is inside if it is greater than the first.
select
    space,
    participant,
    joined_position as from_position,
    coalesce(left_position, 9223372036854775807) as to_position,
    left_time,
    reason,
    anonymous
from participants
