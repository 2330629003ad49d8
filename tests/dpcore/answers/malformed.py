"""Questions that are wrong in as many ways as a user, or an attacker, can think of."""

import random
from collections.abc import Iterator

VALID = (
    "select city, count(*), avg(cost) from release where age >= 65 group by city",
    "select floor(hours / 10) * 10 as h, median(cost) from release where city in ('north', 'south') group by h order by 2 desc limit 5",
    "select year(day), count(*) filter (where smoker) / count(*) as s from release where not (sex is null or cost < 3.5) group by 1 having count(*) > 10",
    "select date_trunc('month', born) m, quantile_cont(cost, 0.9), sum(hours) from release where day between '2025-02-01' and '2025-03-01' group by m",
    "select sex, count(*) * 100.0 / sum(count(*)) over () p from release where city like 'n%' group by sex order by p nulls first offset 1",
    "select bin(cost, 10) c, sum(case when age > 30 then 1 else 0 end) from release group by c",
)

HOSTILE = (
    "",
    " ",
    ";",
    ";;;;",
    "--",
    "/* never ends",
    "/**/",
    "'",
    '"',
    "$$",
    "$tag$ x",
    "\\",
    "\0",
    "select",
    "select from release",
    "select count(*)",
    "select count(*) from",
    "select count(*) from release where",
    "select count(*) from release group by",
    "select count(*) from release order by",
    "select count(*) from release limit",
    "select count(*) from release limit -1",
    "select count(*) from release limit 1.5",
    "select count(*) from release limit 'x'",
    "select count(*) from release limit 10 percent",
    "select count(*) from release limit (select 1)",
    "select count(*) from release; select count(*) from release",
    "select count(*) from release; drop table release",
    "drop table release",
    "insert into release values (1)",
    "update release set age = 1",
    "delete from release",
    "attach 'x.db'",
    "copy release to '/tmp/x'",
    "pragma version",
    "explain select count(*) from release",
    "describe release",
    "show tables",
    "set threads = 1",
    "call f()",
    "values (1)",
    "from release",
    "table release",
    "select * from release",
    "select age from release",
    "select distinct age from release",
    "select count(distinct age) from release",
    "select count(*) from other_table",
    "select count(*) from main.release",
    "select count(*) from release, release",
    "select count(*) from release join release r on true",
    "select count(*) from release cross join release r",
    "select count(*) from (select * from release)",
    "select count(*) from read_csv('/etc/passwd')",
    "select count(*) from 'file.parquet'",
    "select count(*) from release tablesample 10%",
    "select count(*) from release where age in (select age from release)",
    "select count(*) from release where exists (select 1)",
    "select (select count(*) from release) from release",
    "with x as (select 1) select count(*) from release",
    "select count(*) from release union select 1",
    "select count(*) from release where age = (select 1)",
    "select count(*) over (partition by sex) from release",
    "select rank() over (order by age) from release",
    "select sum(count(*)) over (order by sex) from release group by sex",
    "select max(age) from release",
    "select min(cost) from release",
    "select stddev(cost) from release",
    "select mode(sex) from release",
    "select corr(age, cost) from release",
    "select string_agg(city, ',') from release",
    "select list(age) from release",
    "select first(age) from release",
    "select nosuchfunction(age) from release",
    "select avg(nosuchfunction(age)) from release",
    "select avg(city) from release",
    "select sum(sex) from release",
    "select avg(day) from release",
    "select median(city) from release",
    "select quantile_cont(cost, 2) from release",
    "select quantile_cont(cost, [0.1, 0.2]) from release",
    "select quantile_cont(cost) from release",
    "select percentile_cont(0.5) from release",
    "select percentile_cont(0.5) within group (order by cost, age) from release",
    "select avg(*) from release",
    "select sum() from release",
    "select count(cost, age) from release",
    "select avg(cost + 1) from release",
    "select round(avg(cost), 2) from release",
    "select avg(cost) filter (where) from release",
    "select median(day) + 1 from release",
    "select count(*) from release group by cost",
    "select count(*) from release group by at",
    "select count(*) from release group by rollup (sex)",
    "select count(*) from release group by cube (sex, city)",
    "select count(*) from release group by grouping sets ((sex), ())",
    "select count(*) from release group by 7",
    "select count(*) from release group by 0",
    "select count(*) from release group by 1.5",
    "select sex, count(*) from release",
    "select sex, count(*) from release group by city",
    "select age + 1, count(*) from release group by age + 1",
    "select bin(city, 3), count(*) from release group by 1",
    "select bin(cost, 0), count(*) from release group by 1",
    "select bin(cost, -5), count(*) from release group by 1",
    "select bin(cost, 'x'), count(*) from release group by 1",
    "select bin(), count(*) from release group by 1",
    "select floor(cost / 10) * 5, count(*) from release group by 1",
    "select floor(cost), count(*) from release group by 1",
    "select hours // 10 * 10, count(*) from release group by 1",
    "select year(cost), count(*) from release group by 1",
    "select date_trunc('fortnight', day), count(*) from release group by 1",
    "select date_trunc(day), count(*) from release group by 1",
    "select extract(nothing from day), count(*) from release group by 1",
    "select width_bucket(cost, 10, 0, 5), count(*) from release group by 1",
    "select width_bucket(cost, 0, 10, 100000000), count(*) from release group by 1",
    "select count(*) from release where nosuch = 3",
    "select count(*) from release where x.age = 3",
    "select count(*) from release where age = 'old'",
    "select count(*) from release where age > cost",
    "select count(*) from release where age = null",
    "select count(*) from release where age in (1, null)",
    "select count(*) from release where age",
    "select count(*) from release where 3",
    "select count(*) from release where 'x'",
    "select count(*) from release where city = 'nroth'",
    "select count(*) from release where city = 3",
    "select count(*) from release where city = north",
    'select count(*) from release where city = "north"',
    "select count(*) from release where city ~ 'n.*'",
    "select count(*) from release where city similar to 'n%'",
    "select count(*) from release where city like 'n\\%' escape '\\'",
    "select count(*) from release where age like '3%'",
    "select count(*) from release where smoker = 1",
    "select count(*) from release where smoker > true",
    "select count(*) from release where grade = 99",
    "select count(*) from release where day = 'yesterday'",
    "select count(*) from release where day > 20250101",
    "select count(*) from release where day > current_date",
    "select count(*) from release where day > date '2025-01-01' + interval 1 month",
    "select count(*) from release where at > '2025-01-01T00:00:00+02:00'",
    "select count(*) from release where at > timestamp 'x'",
    "select count(*) from release where age between 3",
    "select count(*) from release where age between symmetric 5 and 3",
    "select count(*) from release where age > 1e999999999",
    "select count(*) from release where age > " + "9" * 5000,
    "select count(*) from release where age > -",
    "select count(*) from release where age > ?",
    "select count(*) from release where age > $1",
    "select count(*) from release where age > :x",
    "select count(*) from release where age > {{ x }}",
    "select count(*) from release where count(*) > 3",
    "select count(*) from release having sex = 'F'",
    "select count(*) from release having city > 3",
    "select count(*) from release having count(*) > 'x'",
    "select count(*) from release having count(*)",
    "select count(*) from release order by nosuch",
    "select count(*) from release order by 5",
    "select count(*) from release qualify true",
    "select count(*) from release window w as ()",
    "select count(*) from release for update",
    "select count(*) into x from release",
    "select count(*) from release using sample 5",
    "select count(*)) from release",
    "select (count(*) from release",
    "select count(* from release",
    "select count(*) count(*) from release",
    "select count(*),, count(*) from release",
    "select count(*) from release where (((((age > 3))))",
    "\u202eselect count(*) from release where \u0430ge > 3",
    "select count(*) from release where \U0001f600 = 3",
    'select count(*) from release where "a\'ge" = 3',
    'select count(*) from release where "\n" = 3',
    "select count(*) from release where city = '\x1b[2J'",
    "select count(*) from release where age = \uff11",
    "select \ud800 from release",
    "select case when age > 3 then 1 when age > 5 then 2 end, count(*) from release group by 1",
    "select sum(case when age > 3 then 2 else 1 end) from release",
    "select avg(case age when 3 then 1 else 0 end) from release",
    "select coalesce(age, 3), count(*) from release group by 1",
    "select cast(age as varchar), count(*) from release group by 1",
    "select age::int, count(*) from release group by 1",
    "select columns(*) from release",
    "select release from release",
    "select {'a': age} from release",
    "select [age] from release",
    "select x -> x + 1 from release",
    "select count(*) from release where " + "(" * 5000,
    "select count(*) from release where " + "(" * 300 + "age > 3" + ")" * 300,
    "select " + "(" * 3000 + "1" + ")" * 3000,
    "select count(*) from release where " + "not " * 4000 + "smoker",
    "select " + "- " * 5000 + "1 from release",
    "select " + "f(" * 2000 + ")" * 2000 + " from release",
    "select " + "case when " * 1000 + "1",
    "select " + "[" * 3000,
    "select " + "{" * 3000,
    "select count(*) from " + "(select * from " * 500 + "release" + ")" * 500,
    "select count(*) from release where " + " or ".join(["nosuch = 1"] * 1300),
    "select count(*) from release where age in (" + ", ".join(["'x'"] * 3500) + ")",
    "select " + ", ".join(["count(*)"] * 1800) + " from release",
    "select " + "+".join(["nosuch"] * 2500) + " from release",
    "select count(*) from release where city like '" + "%a" * 9000 + "' and nosuch = 1",
    "x" * 60000,
    "(" * 19999,
    "'" * 19999,
    '"' * 19999,
    "/*" * 9999,
    "a." * 9999,
    "select 1::" + "int[]" * 3000,
)

_PIECES = (
    *(
        "select",
        "from",
        "where",
        "group by",
        "having",
        "order by",
        "limit",
        "and",
        "or",
        "not",
        "in",
        "between",
        "is",
        "null",
        "like",
    ),
    *(
        "(",
        ")",
        ",",
        ";",
        "'",
        '"',
        "*",
        "=",
        "<>",
        "<",
        "/",
        "-",
        ".",
        "%",
        "::",
        "--",
        "/*",
        "*/",
        "[",
        "]",
        "{",
        "}",
        "$",
        "?",
        ":",
        "\\",
    ),
    *(
        "count(*)",
        "avg(",
        "nosuch",
        "age",
        "city",
        "1e9",
        "0x1",
        "9" * 30,
        "''",
        "\u00e9",
        "\U0001f600",
        "\0",
        "\n",
        "case",
        "end",
        "over ()",
    ),
)


def mutated(count: int, *, seed: int) -> Iterator[str]:
    """Yield valid questions with one to four changes each: words removed, repeated, swapped or put in, and characters removed."""
    rng = random.Random(seed)
    for _ in range(count):
        words = rng.choice(VALID).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(words))
            match rng.randrange(5):
                case 0 if len(words) > 1:
                    del words[place]
                case 1:
                    words.insert(place, words[rng.randrange(len(words))])
                case 2:
                    another = rng.randrange(len(words))
                    words[place], words[another] = words[another], words[place]
                case 3:
                    words[place] = words[place][: rng.randrange(len(words[place]) + 1)] + rng.choice(_PIECES)
                case _:
                    words.insert(place, rng.choice(_PIECES))
        yield " ".join(words)


def odd(count: int, *, seed: int, category: str, number: str, flag: str) -> Iterator[str]:
    """Yield questions that are odd, and may be valid: long sums, deep conditions, numbers at the ends of floats, names that are no text.

    Args:
        count: How many, at least the 20 that always come first.
        seed: Decides the others.
        category: A column of categories.
        number: A column of numbers.
        flag: A column of truth values.
    """
    rng = random.Random(seed)
    literals = (
        "1e309",
        "-1e309",
        "9" * 310,
        "1e308",
        "1e-400",
        "1e400",
        "1e401",
        "0",
        "-0",
        "1e15",
        "0.1",
        "'nan'",
        "'inf'",
        "1e3080",
        ".5e-3",
        "1_0",
        "0x1F",
    )
    names = ("n", '"\ud800"', '"\udfff"', '"\0"', '"n_low"', '"' + "n" * 300 + '"', '"\u202e"', '"\U0001f600"')
    operators = ("+", "-", "*", "/")

    def total(terms: int) -> str:
        return f" {rng.choice(operators)} ".join(rng.choice(["1", "count(*)", f"avg({number})"]) for _ in range(terms))

    def nested(depth: int) -> str:
        kind = rng.choice(["not (%s)", f"({flag} and (%s or {flag}))", "(%s) is true", f"{flag} or ({flag} and (%s))"])
        text = flag
        for _ in range(depth):
            text = kind % text
        return text

    fixed = [
        *(f"select count(*){'+1' * terms} as n from release" for terms in (50, 99, 150, 600, 5000)),
        *(
            f"select count(*) * {literal} as n from release"
            for literal in ("1e309", "1e308", "1e308 * 10", "-1e308 * 1e308", "1e-320")
        ),
        *(
            f"select count(*) as n from release where {number} > {literal}"
            for literal in ("1e309", "-1e309", "1e308", "1e-400")
        ),
        *(f"select count(*) as {name} from release" for name in ('"\ud800"', '"a\udc80b"', '"\0"')),
        f"select bin({number}, 1e-300) as b, count(*) from release group by b",
        f"select {category}, count(*) as n from release where {category} = '\ud800' group by {category}",
        f"select count(*) as n from release where {nested(200)}",
    ]
    yield from fixed
    for _ in range(count - len(fixed)):
        name, literal = rng.choice(names), rng.choice(literals)
        match rng.randrange(6):
            case 0:
                yield f"select {total(rng.choice([2, 20, 120, 700]))} as {name} from release"
            case 1:
                yield f"select {category}, count(*) as {name} from release where {nested(rng.choice([1, 10, 60, 300]))} group by {category}"
            case 2:
                yield f"select sum({number}) {rng.choice(operators)} {literal} as {name} from release where {number} <= {rng.choice(literals)}"
            case 3:
                yield f"select bin({number}, {literal}) as b, count(*) as {name} from release group by b"
            case 4:
                yield f"select count(*) as {name} from release group by {category} having count(*) > {literal} order by avg({number}) * {rng.choice(literals)} limit {literal}"
            case _:
                yield f"select quantile_cont({number}, {literal}) as {name} from release where {category} in ({rng.choice(literals)}, 'x{name}')"
