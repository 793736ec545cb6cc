// Package review has what the stages mutation and validation share to ask reviewers outside of the policy about a write:
// admission webhooks and admission plugins. It says what a reviewer is told and what it can answer, asks several in order
// or at once, and applies their failure policies. It knows no transport: packages webhooks and plugins have those.
package review

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/policy"
)

// Review is one write, as one reviewer sees it. It must not be changed.
type Review struct {
	// UID identifies this question. Every question has its own.
	UID types.UID
	// Kind, Resource and Subresource are what Object and OldObject are: the version that the reviewer's rules name.
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	// RequestKind, RequestResource and RequestSubresource are those of the request.
	RequestKind        schema.GroupVersionKind
	RequestResource    schema.GroupVersionResource
	RequestSubresource string
	Namespace, Name    string
	Operation          policy.Operation
	User               user.Info
	// Object is the object as it would be stored, nil for a delete. OldObject is the stored one, nil for a create.
	Object, OldObject json.RawMessage
	DryRun            bool
	// NamespaceLabels are the labels of the object's namespace; nil if it has none.
	NamespaceLabels map[string]string
	// Options are the CreateOptions, UpdateOptions, PatchOptions or DeleteOptions of the request.
	Options json.RawMessage
}

// Verdict is the answer of a reviewer.
type Verdict struct {
	Allowed bool
	// Status says why a write is refused; it may be nil.
	Status *metav1.Status
	// Patch is a JSON patch of the object that was reviewed, and Object all of the changed object. Only the verdict of a
	// mutating reviewer has one of them.
	Patch            []byte
	Object           json.RawMessage
	Warnings         []string
	AuditAnnotations map[string]string
	// Program is the checksum of the program that answered; "" if the reviewer is none.
	Program string
}

// Reviewer reviews writes. It is safe for concurrent use.
type Reviewer interface {
	// Review returns the verdict on a write. The error is a [CallError] if the reviewer could not be asked, or did not
	// answer as it must; then its failure policy decides. The context ends after the reviewer's timeout, with the cause
	// [ErrSilent]. Review limits what it takes of the server: the number of questions at a time, and the size of an answer.
	Review(ctx context.Context, r *Review) (*Verdict, error)
}

// ErrSilent is why the context of a question has ended, if that is because the reviewer did not answer in its time.
var ErrSilent = fmt.Errorf("it did not answer in its time: %w", context.DeadlineExceeded)

// Find returns the way to a reviewer of a policy; nil if this replica has none.
type Find func(*policy.Policy, *policy.Reviewer) Reviewer

type answersKey struct{}

// WithAnswers returns a context whose questions go to other reviewers, which only say something, in place of webhooks and
// plugins.
func WithAnswers(ctx context.Context, find Find) context.Context {
	return context.WithValue(ctx, answersKey{}, find)
}

// Answers returns the reviewers of [WithAnswers], or nil.
func Answers(ctx context.Context) Find {
	find, _ := ctx.Value(answersKey{}).(Find)
	return find
}

// CallError reports that a reviewer could not be asked, or that its answer is invalid.
type CallError struct {
	// What is the kind of the reviewer: webhook or plugin. Name is its name.
	What, Name string
	// Reason is the cause. Code is the HTTP code that metrics count it by.
	Reason error
	Code   int
	// Detail is what users must not read; explanations have it.
	Detail string
}

// Explained returns the text of the error for explanations.
func (e *CallError) Explained() string {
	if e.Detail == "" {
		return e.Error()
	}
	return e.Error() + ": " + e.Detail
}

// Error is as that of kube-apiserver.
func (e *CallError) Error() string {
	return fmt.Sprintf("failed calling %s %q: %v", e.What, e.Name, e.Reason)
}

func (e *CallError) Unwrap() error { return e.Reason }
