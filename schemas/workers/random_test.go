package workers_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/workers"
)

// TestRandomVerdictsAreTheSameHereAndThere compares verdicts of workers and of this process for random
// values and expressions, under concurrent use.
func TestRandomVerdictsAreTheSameHereAndThere(t *testing.T) {
	p := newPool(t, workers.Options{Deadline: patient, Lifetime: 200}, "real")
	var wg sync.WaitGroup
	valid := make([]int, 8)
	for caller := range valid {
		wg.Go(func() {
			here := interpreter.New()
			r := rand.New(rand.NewPCG(uint64(caller), 1))
			for range 15 {
				expression := randomExpression(r)
				for range 10 {
					value, err := json.Marshal(randomValue(r, 2))
					if err != nil {
						t.Error(err)
						return
					}
					want, got := normal(t, here.Evaluate(expression, value)), p.Evaluate(expression, value)
					if !reflect.DeepEqual(got, want) {
						t.Errorf("%s\nof %s: %+v, here %+v", expression, value, got, want)
					}
					if got.Result != nil {
						valid[caller]++
					}
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range valid {
		total += n
	}
	if total < 50 {
		t.Errorf("only %d values were valid", total)
	}
}

var types = []string{"int", "string", "bool", "_", "int & >0", "*1 | int", `*"x" | string`, "[...int]", "{...}", "null | int", "a", "*a | _", "len(c)", `"\(b)-x"`, "a + 1", ">=a", "[for x in c {x}]", "{if a > 1 {b: int}}"}

func randomExpression(r *rand.Rand) string {
	var fields []string
	for _, name := range []string{"a", "b", "c", "d"} {
		of := types[r.IntN(len(types))]
		if r.IntN(2) == 0 {
			of = map[string]string{"a": "int", "b": "string", "c": "[...]", "d": "*a | _"}[name]
		}
		fields = append(fields, name+[]string{"", "?", "!"}[r.IntN(3)]+": "+of)
	}
	if r.IntN(3) == 0 {
		fields = append(fields, "...")
	}
	return "#expression: v: {" + strings.Join(fields, "\n") + "}"
}

func randomValue(r *rand.Rand, depth int) any {
	if depth == 2 || depth > 0 && r.IntN(4) == 0 {
		m := map[string]any{}
		for _, name := range []string{"a", "b", "c", "d"} {
			switch r.IntN(8) {
			case 0:
			case 1:
				m[name] = randomValue(r, depth-1)
			default: // the kind that most expressions admit
				m[name] = map[string]any{"a": r.IntN(9), "b": "text", "c": []any{1, 2}, "d": r.IntN(3)}[name]
			}
		}
		if r.IntN(9) == 0 {
			m["e"] = true
		}
		return m
	}
	if depth > 0 && r.IntN(4) == 0 {
		return []any{randomValue(r, depth-1), randomValue(r, depth-1)}
	}
	return []any{r.IntN(5), r.IntN(5), 1.5, 2.0, "x", fmt.Sprint(r.IntN(3)), true, nil}[r.IntN(8)]
}
