package program_test

import (
	"fmt"
	"slices"
	"testing"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

// nested returns a struct with the given number of fields, each of which is such a struct one level deeper. The last field of a
// struct at the bottom is a secret.
func nested(fields, depth int) *schemas.Node {
	n := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{}}
	for i := range fields {
		child := &schemas.Node{Kinds: schemas.StringKind, Sensitive: i == fields-1}
		if depth > 1 {
			child = nested(fields, depth-1)
		}
		n.Struct.Fields = append(n.Struct.Fields, schemas.Field{Name: fmt.Sprintf("f%d", i), Presence: schemas.Optional, Schema: child})
	}
	return n
}

// Callers add paths of their own to those of a program, and several do so at a time.
func TestSensitivePathsAreNotSharedByAppending(t *testing.T) {
	p, err := program.New(nested(3, 2))
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"f0", "f2"}, {"f1", "f2"}, {"f2", "f2"}}
	a := append(p.SensitivePaths(), []string{"a"})
	b := append(p.SensitivePaths(), []string{"b"})
	if a[3][0] != "a" || b[3][0] != "b" {
		t.Errorf("got %v and %v: one has overwritten the other", a, b)
	}
	if got := p.SensitivePaths(); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Each request that is recorded asks for the paths, so they must not be searched for again.
func TestSensitivePathsAllocateNothing(t *testing.T) {
	p, err := program.New(nested(4, 3))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { p.SensitivePaths() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSensitivePaths(b *testing.B) {
	for _, depth := range []int{1, 2, 3} {
		p, err := program.New(nested(8, depth))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("fields=%d", 8*(intPow(8, depth)-1)/7), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.SensitivePaths()
			}
		})
	}
}

func intPow(x, n int) int {
	result := 1
	for range n {
		result *= x
	}
	return result
}
