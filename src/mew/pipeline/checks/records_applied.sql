-- Each record could be applied to the state of its space.
select space, position, time, kind || ' of ' || participant as what, problem as message
from envelopes
where problem is not null
union all
select space, position, time, event || ' of ' || participant, problem
from system_records
where problem is not null
