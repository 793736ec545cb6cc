package schemas

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Scale says where objects have what autoscaling/v1 shows of them as a Scale. The
// paths are names of fields with a dot before each.
type Scale struct {
	SpecReplicasPath   string `json:"specReplicasPath"`
	StatusReplicasPath string `json:"statusReplicasPath"`
	LabelSelectorPath  string `json:"labelSelectorPath,omitempty"` // empty if there is none
}

// Replicas are what a Scale says of an object.
type Replicas struct {
	Spec, Status int64
	HasSpec      bool // there is a value for Spec
	Selector     string
}

// Of reads an object. It fails if something else than integers and a string is there.
func (s *Scale) Of(object map[string]any) (r Replicas, err error) {
	if r.Spec, r.HasSpec, err = unstructured.NestedInt64(object, fields(s.SpecReplicasPath)...); err != nil {
		return r, err
	}
	if r.Status, _, err = unstructured.NestedInt64(object, fields(s.StatusReplicasPath)...); err != nil {
		return r, err
	}
	if s.LabelSelectorPath != "" {
		r.Selector, _, err = unstructured.NestedString(object, fields(s.LabelSelectorPath)...)
	}
	return r, err
}

// Set sets how many replicas an object is to have. It fails if the path leads through
// something else than structs.
func (s *Scale) Set(object map[string]any, replicas int64) error {
	return unstructured.SetNestedField(object, replicas, fields(s.SpecReplicasPath)...)
}

// Validate checks what is to be shown as a Scale, as apiextensions does of every write:
// of one to the status, only what is there. nil is no Scale, and finds nothing.
func (s *Scale) Validate(object map[string]any, onlyStatus bool) (errs field.ErrorList) {
	if s == nil {
		return nil
	}
	count := func(path string) {
		switch n, _, err := unstructured.NestedInt64(object, fields(path)...); {
		case err != nil:
			errs = append(errs, field.Invalid(field.NewPath(path), n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(field.NewPath(path), n, "should be a non-negative integer"))
		case n > math.MaxInt32:
			errs = append(errs, field.Invalid(field.NewPath(path), n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)))
		}
	}
	if !onlyStatus {
		count(s.SpecReplicasPath)
	}
	count(s.StatusReplicasPath)
	if s.LabelSelectorPath != "" {
		if text, _, err := unstructured.NestedString(object, fields(s.LabelSelectorPath)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(s.LabelSelectorPath), text, err.Error()))
		}
	}
	return errs
}

func fields(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }
