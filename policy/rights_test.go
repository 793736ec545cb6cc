package policy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
)

// A few lines can be rules times subjects times namespaces that no memory has room for.
func TestRightsThatNoMemoryHasRoomForAreRefused(t *testing.T) {
	many := func(format string) (words []string) {
		for i := range 1000 {
			words = append(words, fmt.Sprintf(format, i))
		}
		return words
	}
	binding := policy.Binding{ID: "b", Role: "r", Namespaces: many("ns-%d")}
	for _, name := range many("u%d") {
		binding.Subjects = append(binding.Subjects, policy.Subject{User: name})
	}
	role := policy.Role{Name: "r", Rules: []policy.Rule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: many("pods/s%d")}}}
	if _, err := rights.New(&policy.Access{Roles: []policy.Role{role}, Bindings: []policy.Binding{binding}}); !errors.Is(err, rights.ErrIntricate) {
		t.Error(err)
	}
}

// ofOneGroup are bindings of one group, each in namespaces of its own.
func ofOneGroup(t *testing.T, n int, where string) *rights.Rights {
	t.Helper()
	a := &policy.Access{Roles: []policy.Role{{Name: "r", Rules: []policy.Rule{{ID: "r", Verbs: []string{"get", "list"}, APIGroups: []string{"example.com"}, Resources: []string{"widgets"}}}}}}
	for i := range n {
		a.Bindings = append(a.Bindings, policy.Binding{ID: fmt.Sprint("b", i), Role: "r", Subjects: []policy.Subject{{Group: "devs"}}, Namespaces: []string{strings.ReplaceAll(where, "%", fmt.Sprint(i))}})
	}
	r, err := rights.New(a)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Since when each of thousands has something is compared once, and not all with all.
func TestManyHoldersAreComparedAtOnce(t *testing.T) {
	const n = 3000
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // of less than one: it took minutes
	defer cancel()
	is := ofOneGroup(t, n, "ns-%-*")
	against := is.Against(ofOneGroup(t, n-1, "ns-%-*"))
	held := 0
	for _, h := range is.WhoCan(&rights.Question{Verb: "get", Group: "example.com", Resource: "widgets", AnyNamespace: true}).Holders {
		had, err := against.Held(ctx, &h)
		if err != nil {
			t.Fatal(err)
		}
		if had {
			held++
		} else if want := fmt.Sprint("b", n-1); h.Binding.ID != want {
			t.Errorf("%s is new, and not only %s", h.Binding.ID, want)
		}
	}
	if held != n { // system:masters is one of them
		t.Errorf("%d had it before", held)
	}
}

// What patterns are left of each other can take longer than anybody waits.
func TestADifferenceEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := rights.Difference(ctx, ofOneGroup(t, 0, ""), ofOneGroup(t, 2000, "*a%*b*"), rights.Selection{AnyNamespace: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
