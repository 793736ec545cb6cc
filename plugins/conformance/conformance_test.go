package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"stele.dev/stele/plugins/conformance"
	"stele.dev/stele/plugins/sdk"
	"stele.dev/stele/plugins/sdk/authorizertest"
)

type config struct {
	Limit int `json:"limit"`
}

// failed returns the checks that a plugin does not pass, and why.
func failed(t *testing.T, s *conformance.Subject) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, c := range conformance.Checks() {
		if err := c.Run(t.Context(), s); err != nil {
			all[c.Name] = err.Error()
		}
	}
	return all
}

func deciding(f sdk.Func) sdk.Plugin[config] {
	return sdk.Plugin[config]{Name: "test", Version: "1", Deterministic: true, New: func(context.Context, config, map[string][]byte) (sdk.Authorizer, error) { return f, nil }}
}

func nothing(context.Context, *sdk.Request) (sdk.Decision, error) { return sdk.NoOpinion(), nil }

func TestAPluginThatKeepsAllPassesAll(t *testing.T) {
	s := &conformance.Subject{Start: authorizertest.InProcess(deciding(nothing))}
	if got := failed(t, s); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// Each plugin violates one rule, which the checks must find.
func TestWhatIsBrokenIsFound(t *testing.T) {
	var calls atomic.Int64
	lenient := sdk.Plugin[map[string]any]{Name: "test", Version: "1", New: func(context.Context, map[string]any, map[string][]byte) (sdk.Authorizer, error) {
		return sdk.Func(nothing), nil
	}}
	nameless := deciding(nothing)
	nameless.Name = ""
	for _, c := range []struct {
		name         string
		plugin       *conformance.Subject
		check, wrong string
	}{
		{"it has no name", subject(nameless), "it says what it is", "no name"},
		{"it takes any configuration", &conformance.Subject{Start: authorizertest.InProcess(lenient)}, "it refuses configurations", "it accepted the configuration"},
		{"it takes what its author says it must not", &conformance.Subject{Start: authorizertest.InProcess(deciding(nothing)), BadConfigs: [][]byte{[]byte(`{"limit": -1}`)}},
			"it refuses configurations", `it accepted the configuration {"limit": -1}`},
		{"it denies what it does not know", subject(deciding(func(context.Context, *sdk.Request) (sdk.Decision, error) { return sdk.Deny("no"), nil })),
			"it has no opinion", `DECISION_DENY on the verb "ponder"`},
		{"it panics when something is missing", subject(deciding(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
			if r.Resource == "" && r.Path == "" {
				panic("neither")
			}
			return sdk.NoOpinion(), nil
		})), "requests that lack everything", "panic: neither"},
		{"it has a limit of its own", subject(deciding(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
			if len(r.User.Groups) > 1000 {
				return sdk.NoOpinion(), errors.New("too many groups")
			}
			return sdk.NoOpinion(), nil
		})), "1 MiB", "too many groups"},
		{"it counts", subject(deciding(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
			if r.Verb == "delete" {
				return sdk.Allow(fmt.Sprint(calls.Add(1))), nil
			}
			return sdk.NoOpinion(), nil
		})), "64 callers", "while it answers others"},
		{"it throws dice", subject(deciding(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
			if r.Verb == "delete" && rand.IntN(2) == 0 {
				return sdk.Deny("bad luck"), nil
			}
			return sdk.NoOpinion(), nil
		})), "100 times", "and later with"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := failed(t, c.plugin)
			for check, wrong := range got {
				if strings.Contains(check, c.check) && strings.Contains(wrong, c.wrong) {
					return
				}
			}
			t.Errorf("%q is not said of %q, but %v", c.wrong, c.check, got)
		})
	}
}

func subject(p sdk.Plugin[config]) *conformance.Subject {
	return &conformance.Subject{Start: authorizertest.InProcess(p)}
}

func TestTablesAreRefusedThatSayTooLittleOrTooMuch(t *testing.T) {
	for _, c := range []struct{ table, want string }{
		{"cases: []", "there are no cases"},
		{"cases: [{verb: get, path: /, expect: allow}, {name: case 1, verb: get, path: /, expect: allow}]", `two cases are called "case 1"`},
		{"cases: [{verb: get, path: /}]", "case 1: expect is missing"},
		{"cases: [{verb: get, path: /, expect: maybe}]", `case 1: expect: "maybe" is not one of allow, deny, no opinion and error`},
		{"cases: [{path: /, expect: allow}]", "case 1: verb is missing"},
		{"cases: [{verb: get, expect: allow}]", "case 1: a request has either a resource or a path"},
		{"cases: [{verb: get, path: /, resource: a, expect: allow}]", "case 1: a request has either a resource or a path"},
		{"cases: [{verb: get, path: /, namespace: a, expect: allow}]", "case 1: a request with a path must not have fields that describe a resource"},
		{"cases: [{verb: get, path: /, expect: allow, reason: (}]", "case 1: reason: error parsing regexp"},
		{"cases: [{verb: get, path: /, expects: allow}]", `unknown field "expects"`},
	} {
		if _, err := conformance.ParseTable([]byte(c.table)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.table, err, c.want)
		}
	}
}

func TestATableIsPlayed(t *testing.T) {
	table, err := conformance.ParseTable([]byte(`
config: {limit: 2}
cases:
- {name: few, user: a, groups: [x], verb: get, resource: things, expect: no opinion}
- {name: many, user: a, groups: [x, y, z], verb: get, resource: things, expect: deny, reason: '^3 '}
- {name: wrongly, user: a, groups: [x, y, z], verb: get, resource: things, expect: allow}
- {name: other words, user: a, groups: [x, y, z], verb: get, resource: things, expect: deny, reason: '^4 '}
- {name: broken, user: a, verb: break, path: /, expect: error, reason: out of order}
`))
	if err != nil {
		t.Fatal(err)
	}
	p := sdk.Plugin[config]{Name: "test", Version: "1", New: func(_ context.Context, c config, _ map[string][]byte) (sdk.Authorizer, error) {
		return sdk.Func(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
			switch {
			case r.Verb == "break":
				return sdk.NoOpinion(), errors.New("out of order")
			case len(r.User.Groups) > c.Limit:
				return sdk.Deny(fmt.Sprint(len(r.User.Groups), " groups are too many")), nil
			}
			return sdk.NoOpinion(), nil
		}), nil
	}}
	results, err := table.Play(t.Context(), table.Subject(authorizertest.InProcess(p)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, fmt.Sprintf("%s: %t %s %q %s", r.Name, r.Passed, r.Verdict, r.Reason, r.Wrong))
	}
	want := []string{
		`few: true no opinion "" `,
		`many: true deny "3 groups are too many" `,
		`wrongly: false deny "3 groups are too many" want allow`,
		`other words: false deny "3 groups are too many" want a reason that matches "^4 "`,
		`broken: true error "out of order" `,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
