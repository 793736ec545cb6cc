package workers_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/workers"
)

const sized = "#expression: v: {cpus: int & >0, memory: *(cpus * 2) | int, disks?: [...{size: int & >0, kind: *\"ssd\" | \"disk\"}], notes?: [string]: string}"

// values returns a function that returns different values of about 200 bytes.
func values() func() []byte {
	var n atomic.Int64
	return func() []byte {
		return fmt.Appendf(nil, `{"cpus":%d,"disks":[{"size":1},{"size":2,"kind":"disk"},{"size":3}],"notes":{"a":"some text that is there","b":"and some more of it, which is of no use to anybody"}}`, n.Add(1))
	}
}

func benchmark(b *testing.B, e schemas.Evaluator, callers int) {
	next := values()
	if v := e.Evaluate(sized, next()); v.Result == nil {
		b.Fatal(v)
	}
	evaluate := func() {
		if v := e.Evaluate(sized, next()); v.Result == nil {
			b.Error(v)
		}
	}
	if callers == 1 {
		for b.Loop() {
			evaluate()
		}
		return
	}
	b.SetParallelism(callers)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			evaluate()
		}
	})
}

func BenchmarkEvaluateHere(b *testing.B) { benchmark(b, interpreter.New(), 1) }

func BenchmarkEvaluateInAWorker(b *testing.B) {
	benchmark(b, newPool(b, workers.Options{Deadline: patient}, "real"), 1)
}

func BenchmarkEvaluateInWorkersByEight(b *testing.B) {
	benchmark(b, newPool(b, workers.Options{Deadline: patient}, "real"), 4) // four for each of two processors
}

// BenchmarkStartAWorker measures the first evaluation, which starts a process.
func BenchmarkStartAWorker(b *testing.B) {
	p := newPool(b, workers.Options{Deadline: patient, Lifetime: 1}, "real")
	next := values()
	for b.Loop() {
		if v := p.Evaluate(sized, next()); v.Result == nil {
			b.Fatal(v)
		}
	}
}
