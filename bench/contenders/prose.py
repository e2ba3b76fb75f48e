"""Text that has no calls, though much of what they are made of."""

ENGLISH = """\
## What the tide does

The tide rises **twice a day** in most harbours, but *not* in all of them: where the two waves meet, one may cancel
the other. A table for the next week is on the board by the office; read it before you plan anything.

1. Look up the hour of high water.
2. Add the difference of your harbour, which is in `tables.csv`.
3. Leave a margin. Half an hour is enough on most days, though not in a storm.

> "It is not the water that moves", said the pilot, "it is the moon that pulls." He was right, as pilots are.

| day | high | low |
| --- | --- | --- |
| Monday | 04:12 | 10:31 |
| Tuesday | 05:01 | 11:20 |

More of it is in [the almanac](https://example.org/almanac), chapter 3 - and if you have a question, then ask: nobody
was born with this knowledge, and those who have it were told by others. You will not be the first to run aground.

"""

CODE = """\
The map is a `std::map<std::string, std::vector<int>>`, so `counts["a"][0]` is right and `counts[0]["a"]` is not:

```cpp
template <typename T, size_t N>
T sum(const std::array<T, N>& values) {
    T total{};
    for (size_t i = 0; i < N; ++i) { total += values[i] << 1; }
    return total < T{} ? T{} : total;
}
```

In the page it is `<ul class="list"><li>[1]</li><li>[2]</li></ul>`, and `<script>` must not be in it. In the shell:

```sh
if [[ -f "$1" && $(wc -l < "$1") -gt 10 ]]; then head -n 10 < "$1" > out.txt; fi
```

The package has `{"name": "demo", "version": "1.0.0", "files": ["dist", "src"]}`, in full:

```json
{"name": "demo", "scripts": {"test": "tap [a-z]*.js", "build": "tsc < list.txt"}, "files": [["dist"], ["src"]]}
```

Types: `Array<Promise<[string, number]>>`, `x is Foo<Bar>[]`, `a[i] < b[j] && c <= d`, ``a `quoted` tick``, `[x](y)`.
[Note: `List<? extends T>[]` is what Java has, <T>f([1, 2]) what TypeScript has, [[nodiscard]] what C++ has.]

"""
