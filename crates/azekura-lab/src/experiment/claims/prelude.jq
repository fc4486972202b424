# What expressions of claims.toml can use beside jq itself. Their input is the table: an array with one object
# for each row of results.csv, its numbers as numbers.

# The rows for which a condition holds; there have to be some, or the claim would say nothing.
def where(condition):
  map(select(condition)) | if length == 0 then error("no row fits") else . end;
# What one row has in a column.
def at(condition; column):
  where(condition) | if length == 1 then .[0] | column else error("\(length) rows fit, not one") end;
# The rows as an object, each under what it has there: `keyed(.path) | .fuse.read / .native.read`.
def keyed(by):
  map({key: (by | tostring), value: .})
  | if (map(.key) | unique | length) == length then from_entries else error("two rows have the same key") end;
def least(column): map(column) | min;
def most(column): map(column) | max;
def mean(column): map(column) | add / length;
def count(condition): map(select(condition)) | length;
def middle(column):
  map(column) | sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
# The value that a share of the rows, 0 to 1, does not pass.
def within(column; share): map(column) | sort | .[([length * share | ceil, 1] | max) - 1 | floor];
def apart($a; $b): ($a - $b) / ([$a, $b] | max) | fabs;
# Whether a column never falls, or never rises, as another one grows.
def steps(by; column): sort_by(by) | map(column) | . as $v | [range(1; length) | $v[.] / $v[. - 1]];
def rises(by; column): steps(by; column) | all(. >= 1);
def falls(by; column): steps(by; column) | all(. <= 1);
