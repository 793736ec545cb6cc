// This file writes what a control plane needs before its first request: a policy in force, and the namespaces
// that always exist.

package activation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas/builtin"
)

// ServerActor is the user of writes by the server itself.
const ServerActor = "system:stele"

// ActivateCompiled puts a compiled policy in force, in place of the one at the committer's tip, and returns the revision of
// the activation. If another policy is activated in the meantime, that one stays, and the error is a [*commit.Stale].
// For a policy of another control plane, the error is an [*Renamed].
func ActivateCompiled(ctx context.Context, c *commit.Committer, compiled *compile.Result, actor string) (uint64, error) {
	tip, err := c.Confirm(ctx)
	if err != nil {
		return 0, err
	}
	return ActivateProposal(ctx, c, tip, Proposal(compiled, ""), compiled.Form, actor)
}

// ActivateProposal is Activate for a proposal, and in place of the policy at a tip.
func ActivateProposal(ctx context.Context, c *commit.Committer, tip *commit.Tip, proposal *policies.Proposal, form *policy.Form, actor string) (uint64, error) {
	after, err := Activate(ctx, c, tip, proposal, form, false, func(m *logpb.Metadata) {
		verb := map[logpb.Type]string{logpb.Type_TYPE_POLICY_PROPOSED: "propose", logpb.Type_TYPE_POLICY_ACTIVATED: "activate"}[m.GetType()]
		signEvent(tip, m, actor, verb)
	})
	if err != nil {
		return 0, fmt.Errorf("activate policy %s: %w", proposal.Digest, err)
	}
	return after.ActivationRevision(), nil
}

// firstNamespaces are the namespaces that always exist.
var firstNamespaces = []string{"default", "kube-system"}

// CreateNamespaces creates the namespaces that always exist, if they are missing.
func CreateNamespaces(ctx context.Context, c *commit.Committer) error {
	for _, name := range firstNamespaces {
		for {
			tip, err := c.Confirm(ctx)
			if err != nil {
				return err
			}
			if tip.Objects.Get(commit.Namespaces, "", name) != nil {
				break
			}
			var stale *commit.Stale
			if err := createNamespace(ctx, c, tip, name); errors.As(err, &stale) {
				continue // another replica has created it
			} else if err != nil {
				return fmt.Errorf("create namespace %s: %w", name, err)
			}
		}
	}
	return nil
}

func createNamespace(ctx context.Context, c *commit.Committer, tip *commit.Tip, name string) error {
	kind := tip.Policy.Version(schema.GroupVersionResource{Version: "v1", Resource: commit.Namespaces.Resource})
	if kind == nil {
		return errors.New("the policy in force does not serve namespaces")
	}
	meta := &metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}}
	metadata.FillNew(meta, "", 0, time.Now())
	content := map[string]any{}
	builtin.Prepare(kind.Kind.Kind.Kind, content, nil)
	kind.Program.Prepare(content)
	payload, err := canonical.Object("v1", kind.Kind.Kind.Kind, meta, content)
	if err != nil {
		return err
	}
	e := &eventlog.Event{Meta: &logpb.Metadata{
		Type: logpb.Type_TYPE_CREATED,
		Object: &logpb.Object{
			Resource: commit.Namespaces.Resource, Name: name, Uid: string(meta.UID), Version: "v1", Kind: kind.Kind.Kind.Kind,
		},
	}}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, payload)
	_, err = writeEvent(ctx, c, tip, e, ServerActor, "create", commit.Checks{
		PolicyRevision: tip.PolicyRevision(), Object: &commit.Key{GroupResource: commit.Namespaces, Name: name},
	})
	return err
}

// writeEvent commits an event of the server itself.
func writeEvent(ctx context.Context, c *commit.Committer, tip *commit.Tip, e *eventlog.Event, actor, verb string, checks commit.Checks) (uint64, error) {
	signEvent(tip, e.Meta, actor, verb)
	entry, err := c.Encode(ctx, e)
	if err != nil {
		return 0, err
	}
	_, revision, err := c.Commit(ctx, &commit.Proposal{Entry: entry, Checks: checks})
	return revision, err
}

// signEvent sets the metadata of an event of the server itself. Without a verb, the event has no record in the audit log.
func signEvent(tip *commit.Tip, m *logpb.Metadata, actor, verb string) {
	m.Actor = &logpb.Actor{User: actor, Groups: []string{"system:masters"}}
	if tip.Policy != nil {
		digest := tip.Policy.Digest()
		m.PolicyDigest = digest[:]
	}
	if verb != "" {
		asked := policy.Request{User: actor, Groups: m.Actor.Groups, Verb: verb, IsResource: true, Group: Group, Resource: Plural}
		if o := m.Object; o != nil {
			asked.Group, asked.Resource, asked.Namespace, asked.Name = o.Group, o.Resource, o.Namespace, o.Name
		}
		m.Decisions = &logpb.Decisions{Audit: new(audits.Tables).Of(tip.Policy).Classify(&asked).Record}
		m.Request = &logpb.Request{Verb: verb, AuditId: uuid.NewString(), UserAgent: "stele", ReceivedUnixNano: time.Now().UnixNano(), Status: 200}
	}
}
