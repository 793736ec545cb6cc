package verify

import (
	"encoding/json"
	"math/rand/v2"
	"time"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/samples"
)

// Cost returns the longest time that CUE takes to evaluate one of some example values. The result varies
// between calls.
func Cost(f schemas.FallbackAt) time.Duration {
	const examples, repeats = 12, 3
	schema, err := interpreter.Expressed(f.CUE)
	if err != nil {
		return 0
	}
	g := samples.Maker{Rand: rand.New(rand.NewPCG(11, 12)), Unknown: 0, Keys: nil, Full: 90}
	var worst time.Duration
	for range examples {
		value, err := json.Marshal(g.Witness(f.Node))
		if err != nil {
			continue
		}
		best := time.Duration(1 << 62)
		for range repeats {
			start := time.Now()
			interpreter.AskExpression(schema, value)
			best = min(best, time.Since(start))
		}
		worst = max(worst, best)
	}
	return worst
}
