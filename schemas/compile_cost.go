package schemas

import (
	"encoding/json"
	"math/rand/v2"
	"time"
)

// Cost measures how long CUE takes for a value at most, among examples that are made from
// the schema. It is another one each time.
func (f FallbackAt) Cost() time.Duration {
	const examples, repeats = 12, 3
	schema, err := expressed(f.CUE)
	if err != nil {
		return 0
	}
	g := maker{rand.New(rand.NewPCG(11, 12)), 0, nil, 90}
	var worst time.Duration
	for range examples {
		value, err := json.Marshal(g.witness(f.node))
		if err != nil {
			continue
		}
		best := time.Duration(1 << 62)
		for range repeats {
			start := time.Now()
			askExpression(schema, value)
			best = min(best, time.Since(start))
		}
		worst = max(worst, best)
	}
	return worst
}
