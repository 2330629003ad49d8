"""The commented spec that `dpflow init` writes."""

STARTER = """\
# A release spec: what may be in the table, and what may be spent on it. Check it with: dpflow check DATASET.yaml
dataset: DATASET                     # the ledger account that pays; open it once with:
                                     # dpflow ledger open DATASET --epsilon 10 --delta 1e-9 --unit row --neighbours add-remove

source: {path: DATASET.csv}          # CSV, Parquet or Arrow: a file, a folder, a pattern such as visits/*.parquet, or s3://bucket/visits
# source: {sql: select * from visits, url_env: CLINIC_DB}   # or a query; the variable holds the database's address

privacy:
  unit: row                          # whom to protect: row, or the column that identifies a person
  # max_rows_per_unit: 2             # with a person as unit: how many of a person's rows are kept
  # weight: {column: visits, max: 10}   # a column that says how often each row counts, and the most that it may
  neighbours: add-remove             # or replace-one, if the number of units is public
  epsilon: 1.0                       # what this release may spend
  delta: 1.0e-9                      # well below one over the number of people; 0 for pure differential privacy
  # expect_rows: [20000, 200000]     # how many rows should count: if the noisy total, bought first for 2 % of the budget, lies outside,
                                     # the run stops before it spends the rest

# blocks: {column: joined, every: month, window: new}   # a budget for each month, and runs that read what is new; the account then
                                     # needs: --blocks "month of joined"

# Only these columns are read and released. Declare from what you know about the table, not by looking at it:
# a value found in the data and written here would leave without being paid for.
universe:
  sex:    {type: categorical, values: [F, M], missing: true}      # keeps nulls as nulls; missing: ["?"] does so for texts
  age:    {type: integer, min: 0, max: 99, width: 10}             # outside: clip is the default for ordered columns
  member: {type: boolean}
  cost:   {type: number, edges: [0, 100, 500, 2000, 10000]}       # or min, max and bins
  joined: {type: date, min: 2025-01-01, max: 2026-12-31, every: quarter}
                                     # text is read as 2025-01-31; otherwise declare how it is written, such as format: "%m/%d/%Y",
                                     # or a list of formats: without it, rows with other dates are dropped or counted as missing
  city:   {type: categorical, values: [north, south], outside: other}   # undeclared values share one cell
  # code: {type: categorical, values_from: icd9.txt, match: prefix}      # one value a line; 250.13 counts as 250
  # code: {type: categorical, discover: {most: 100, length: 6, share: 0.1}}   # or find the heavy values, for a tenth of the budget;
                                     # what is not found counts as other

workload:
  marginals: 2                       # what matters: all 2-way marginals; or a list such as [[sex, age], [age, cost]],
                                     # in which an entry may have a weight: {columns: [age, cost], weight: 3}
  # target: member                   # only the marginals with this column; its pairs with others are learned first
  # ranges: [age, joined]            # ordered columns on which counts up to a value, or between two, matter
# strategy: {name: mwem}             # adaptive | mwem | pmw; left out, it is chosen by workload and universe
output: {path: releases, rows: noisy}
# engine: {name: dask, scheduler: "tcp://10.0.0.5:8786"}   # reads and counts a table that is larger than this machine
"""
