package admit

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var groupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

// Site is the Go type of the kind Site in policy/sites.cue.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SiteSpec `json:"spec"`
}

// SiteSpec is the desired state.
type SiteSpec struct {
	Host     string `json:"host,omitempty"`
	Replicas int32  `json:"replicas,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *Site) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// sites implements the webhooks.
type sites struct{}

// Default gives a site without a host one that follows from its name and namespace.
func (sites) Default(_ context.Context, s *Site) error {
	if s.Spec.Host == "" {
		s.Spec.Host = s.Name + "." + s.Namespace + ".example.com"
	}
	return nil
}

// ValidateCreate refuses hosts of others.
func (sites) ValidateCreate(_ context.Context, s *Site) (admission.Warnings, error) {
	if !strings.HasSuffix(s.Spec.Host, ".example.com") {
		return nil, fmt.Errorf("the host %s is not below example.com", s.Spec.Host)
	}
	if s.Spec.Replicas == 1 {
		return admission.Warnings{"a site with one replica is down while it is updated"}, nil
	}
	return nil, nil
}

// ValidateUpdate also refuses another host.
func (v sites) ValidateUpdate(ctx context.Context, old, s *Site) (admission.Warnings, error) {
	if s.Spec.Host != old.Spec.Host {
		return nil, fmt.Errorf("the host of a site stays %s", old.Spec.Host)
	}
	return v.ValidateCreate(ctx, s)
}

// ValidateDelete keeps sites that are marked.
func (sites) ValidateDelete(_ context.Context, s *Site) (admission.Warnings, error) {
	if s.Labels["keep"] == "yes" {
		return nil, fmt.Errorf("the site %s is to be kept: remove its label keep first", s.Name)
	}
	return nil, nil
}
