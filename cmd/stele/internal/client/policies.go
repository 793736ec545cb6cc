package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/changes"
)

// Commits returns a function that names the commit of an activated policy, if the user may read it.
func (c *Policies) Commits(ctx context.Context) func(*changes.Change) string {
	known := map[string]string{}
	return func(x *changes.Change) string {
		if _, ok := known[x.Policy]; !ok {
			list, _ := c.List(ctx)
			for _, p := range list {
				known[p.Name] = p.Spec.Commit
			}
		}
		return CommitText(known[x.Policy])
	}
}

// CommitText returns the commit of a policy as the end of a phrase, such as " of commit 3c6d1a0e5d0f with changes".
func CommitText(commit string) string {
	if commit == "" {
		return ""
	}
	if hex, ok := strings.CutPrefix(commit, "sha256:"); ok {
		return " of artifact sha256:" + hex[:min(12, len(hex))]
	}
	commit, changed := strings.CutSuffix(commit, "+changes")
	text := " of commit " + commit[:min(12, len(commit))]
	if changed {
		text += " with changes"
	}
	return text
}

// Policies is a client of policy.stele.dev/v1, the API of policies.
type Policies struct {
	rest   *rest.RESTClient
	config *rest.Config
}

// NewPolicies returns a client of the API of policies. The handler gets the server's warnings.
func NewPolicies(o *Flags, warnings rest.WarningHandler) (*Policies, error) {
	config, _, err := o.Config()
	if err != nil {
		return nil, err
	}
	config.WarningHandler = warnings
	return NewPoliciesOf(config)
}

// NewPoliciesOf returns a client of the policies of the server of a config.
func NewPoliciesOf(config *rest.Config) (*Policies, error) {
	c, err := newRESTClient(config, activation.Group, activation.Version)
	return &Policies{rest: c, config: config}, err
}

// List returns the policies without their files. The first one is in force.
func (c *Policies) List(ctx context.Context) ([]*activation.Policy, error) {
	var list struct{ Items []*activation.Policy }
	if err := get(ctx, c.rest.Get().Resource(activation.Plural), &list); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no policy is in force")
	}
	return list.Items, nil
}

// InForce returns the policy in force without its files.
func (c *Policies) InForce(ctx context.Context) (*activation.Policy, error) {
	list, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// Get returns a policy with its files.
func (c *Policies) Get(ctx context.Context, name string) (*activation.Policy, error) {
	p := new(activation.Policy)
	return p, get(ctx, c.rest.Get().Resource(activation.Plural).Name(name), p)
}

// FindPolicy returns the policy whose digest begins with a text.
func FindPolicy(list []*activation.Policy, digest string) (*activation.Policy, error) {
	var found *activation.Policy
	for _, p := range list {
		if !strings.HasPrefix(p.Name, digest) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("several policies have a digest that begins with %s, such as %.12s and %.12s; give more of the digest", digest, found.Name, p.Name)
		}
		found = p
	}
	if found == nil {
		return nil, fmt.Errorf("no policy %s was ever in force; `stele policy log` shows those that were", digest)
	}
	return found, nil
}

// PolicyAt returns the policy that was in force at a revision.
func PolicyAt(list []*activation.Policy, revision uint64) (*activation.Policy, error) {
	var found *activation.Policy
	since := uint64(0)
	for _, p := range list {
		for _, r := range p.Status.Revisions {
			if r <= revision && r > since {
				found, since = p, r
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no policy was in force at revision %d", revision)
	}
	return found, nil
}

// activationAt is a revision at which a policy was activated.
type activationAt struct {
	revision uint64
	policy   *activation.Policy
}

// activations returns when policies were activated, the oldest activation first.
func activations(list []*activation.Policy) []activationAt {
	var all []activationAt
	for _, p := range list {
		for _, r := range p.Status.Revisions {
			all = append(all, activationAt{r, p})
		}
	}
	slices.SortFunc(all, func(a, b activationAt) int { return cmp.Compare(a.revision, b.revision) })
	return all
}

// PolicyBefore returns the policy before the one in force. An activation of an earlier policy counts as a rollback:
// the policies after that one are skipped, so that a second rollback goes further back.
func PolicyBefore(list []*activation.Policy) (*activation.Policy, error) {
	var stack []*activation.Policy
	for _, a := range activations(list) {
		if i := slices.Index(stack, a.policy); i >= 0 {
			stack = stack[:i]
		}
		stack = append(stack, a.policy)
	}
	if len(stack) > 1 {
		return stack[len(stack)-2], nil
	}
	var others strings.Builder
	for _, a := range slices.Backward(activations(list)) {
		fmt.Fprintf(&others, "\n  %.12s, activated at revision %d%s", a.policy.Name, a.revision, CommitText(a.policy.Spec.Commit))
	}
	return nil, fmt.Errorf("no policy was in force before %.12s; to activate a later one again, use stele policy rollback DIGEST:%s", list[0].Name, others.String())
}
