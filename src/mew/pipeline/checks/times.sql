-- The time of a record is never before the time of the record before it.
select
    space,
    position,
    time,
    'record ' || position as what,
    'its time is ' || time || ', and that of record ' || before || ' is ' || time_before as message
from order_breaks
where time < time_before
