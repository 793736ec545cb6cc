package delivery_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/delivery"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// source is a source whose newest version a test sets.
type source struct {
	id, bundle, signer string
	err                error
	delivered          string // with which Pull was called last
	reads              int
}

func (s *source) String() string { return "git https://git.example.com/policy.git#main:." }
func (s *source) Actor() string  { return "system:stele:policy-git" }

func (s *source) Pull(_ context.Context, delivered string) (*delivery.Version, error) {
	s.delivered = delivered
	if s.err != nil {
		return nil, s.err
	}
	return &delivery.Version{ID: s.id, Signer: s.signer, Read: func(context.Context) (*bundles.Source, error) {
		s.reads++
		return bundles.ReadFS(fstest.MapFS{
			"bundle.cue":         {Data: []byte(s.bundle)},
			"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
		}, ".")
	}}, nil
}

// bundle is a policy that differs by its number.
func bundle(n int) string {
	return fmt.Sprintf(`package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"], rbac: clusterRoles: "reader-%d": rules: r: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}}}
`, n)
}

// site is a plane and a follower of a source.
type site struct {
	*planetest.Plane
	*delivery.Follower
	source  *source
	follows bool
	log     bytes.Buffer
	t       *testing.T
}

func newSite(t *testing.T, heal bool) *site {
	s := &site{Plane: planetest.Start(t, planetest.Options{Bundle: bundle(0)}), source: &source{id: "c1", bundle: bundle(1), signer: "alice@example.com"}, t: t}
	s.Follower = delivery.New(delivery.Options{
		Source: s.source, Committer: s.Committer, Heal: heal, Follows: func() bool { return s.follows }, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		Compile: func(_ context.Context, source *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
			compiled, diags := compile.Bundle(source)
			return compiled, diags, nil
		},
	})
	return s
}

// activate puts a policy in force by hand.
func (s *site) activate(n int) {
	s.t.Helper()
	if _, err := activation.ActivateCompiled(s.t.Context(), s.Committer, planetest.Compile(s.t, bundle(n)), "admin"); err != nil {
		s.t.Fatal(err)
	}
}

// want checks which policy is in force, by its number, and whether that is drift.
func (s *site) want(n int, drift bool, message string) {
	s.t.Helper()
	_, sum := planetest.Compile(s.t, bundle(n)).Form.Encode()
	digest := policies.Digest(sum)
	state := s.State()
	if got := s.Committer.Tip().Policies.Active.Digest; got != digest || state.InForce != digest.String() {
		s.t.Errorf("policy %d is not in force", n)
	}
	if state.Drifted() != drift || !strings.Contains(state.Message, message) || (message == "") != (state.Message == "") {
		s.t.Errorf("drift %v, message %q; want %v, %q", state.Drifted(), state.Message, drift, message)
	}
	if healthy := s.Health() == nil; healthy != (message == "") {
		s.t.Errorf("health: %v", s.Health())
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(s.Follower.Metrics()...)
	value := map[bool]string{true: "1", false: "0"}[drift]
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(`# HELP stele_policy_drift 1 if the policy in force is not that of the newest version of its source, else 0.
# TYPE stele_policy_drift gauge
stele_policy_drift `+value+"\n"), "stele_policy_drift"); err != nil {
		s.t.Error(err)
	}
}

func TestTheNewestVersionIsPutInForce(t *testing.T) {
	s := newSite(t, false)
	for n := 1; n <= 2; n++ {
		s.source.id, s.source.bundle = fmt.Sprint("c", n), bundle(n)
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.want(n, false, "")
		history := s.Committer.Tip().Policies.History
		if last := history[len(history)-1]; last.Actor != s.source.Actor() || last.Commit != s.source.id {
			t.Errorf("activated by %s, from %s", last.Actor, last.Commit)
		}
	}
	before := s.Committer.Tip().Revision()
	for range 3 {
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Committer.Tip().Revision(); got != before || s.source.reads != 2 || s.source.delivered != "c2" {
		t.Errorf("revision %d after %d, %d reads, delivered %s", got, before, s.source.reads, s.source.delivered)
	}
	if n := strings.Count(s.log.String(), "\n"); n != 2 {
		t.Errorf("%d lines are logged, want one for each change:\n%s", n, &s.log)
	}
}

func TestAPolicyThatWasActivatedByHandStaysUntilTheSourceChanges(t *testing.T) {
	s := newSite(t, false)
	check := func() {
		t.Helper()
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	check()
	s.activate(7)
	check()
	s.want(7, true, "admin activated policy")
	s.source.id = "c2" // with the same policy
	check()
	s.want(7, true, "admin activated policy")
	s.source.id, s.source.bundle = "c3", bundle(3)
	check()
	s.want(3, false, "")
	s.activate(7)
	s.source.id, s.source.bundle = "c4", bundle(7) // the hand's policy arrives in the source
	check()
	s.want(7, false, "")
	s.activate(8)
	check()
	s.want(8, true, "by hand")
	s.activate(7)
	s.want(7, false, "") // without another pull
}

func TestHealingReplacesAPolicyThatWasActivatedByHand(t *testing.T) {
	s := newSite(t, true)
	for range 2 {
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.want(1, false, "")
		s.activate(7)
	}
}

func TestOnlyTheLeaderActivates(t *testing.T) {
	s := newSite(t, false)
	s.follows = true
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want(0, true, "the replica that leads has not activated it yet")
	s.activate(1) // as the leader does
	s.want(1, false, "")
	s.follows = false
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want(1, false, "")
}

func TestWhatCannotBeUsedLeavesThePolicyInForce(t *testing.T) {
	s := newSite(t, false)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	revision := s.Committer.Tip().Revision()
	fails := func(want string, drift bool) {
		t.Helper()
		for range 2 {
			if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		s.want(1, drift, want)
	}
	s.source.err = errors.New("git.example.com does not answer")
	fails("does not answer", false)
	s.source.err = &delivery.RefusedError{ID: "c2", Why: "it is not signed"}
	fails("c2 is refused: it is not signed", true)
	s.source.err, s.source.id = nil, "c3"
	s.source.bundle = bundle(3) + "bundle: cluster: 5\n"
	fails("bundle.cue:", true)
	reads := s.source.reads
	s.source.id, s.source.bundle = "c4", strings.Replace(bundle(4), `cluster: "test"`, `cluster: "other"`, 1)
	fails("--rename", true)
	if got := s.Committer.Tip().Revision(); got != revision || reads != 2 {
		t.Errorf("revision %d after %d, %d reads; a broken bundle is compiled once", got, revision, reads)
	}
	s.source.id, s.source.bundle = "c5", bundle(5)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want(5, false, "")
}

func TestAPlaneStartsWithThePolicyOfItsSource(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Config: plane.Config{Delivery: delivery.Options{Source: &source{id: "c1", bundle: bundle(1), signer: "alice@example.com"}}}})
	client, err := dynamic.NewForConfig(p.Client("admin", "system:masters"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Resource(schema.GroupVersionResource{Group: "policy.stele.dev", Version: "v1", Resource: "policysources"}).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatal(list, err)
	}
	o := list.Items[0]
	status := o.Object["status"].(map[string]any)
	if o.GetName() != "git" || status["source"] != (&source{}).String() {
		t.Errorf("%s: %v", o.GetName(), status)
	}
	active := p.Committer.Tip().Policies.Active
	if active == nil || active.Commit != "c1" || status["inForce"] != active.Digest.String() {
		t.Errorf("in force %v, shown %v", active, status)
	}
}
