{{ config(materialized='table') }}

select
    department,
    count(*) as visits,
    avg(cost) as mean_cost,
    avg(readmitted::int) as readmitted
from {{ source('dpflow', 'clinic_visits') }}
group by department
