package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/object/difference"
)

// ObjectDifference is how an object differs between two revisions.
type ObjectDifference struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	From       uint64             `json:"from"` // revisions
	To         uint64             `json:"to"`
	Change     string             `json:"change"` // created, deleted, changed, or replaced by another of the same name
	Object     ObjectReference    `json:"object"`
	Difference []difference.Entry `json:"difference"`

	// Before and After are the object at the two revisions, and Hidden are its secret fields.
	Before, After map[string]any `json:"-"`
	Hidden        secrets.Fields `json:"-"`
}

// GVK returns the kind of the object.
func (d *ObjectDifference) GVK() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(d.Object.APIVersion, d.Object.Kind)
}

// ObjectReference names the object of an [ObjectDifference].
type ObjectReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Resource   string `json:"resource"` // with its group
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// String returns the object's resource, namespace and name.
func (r *ObjectReference) String() string {
	if r.Namespace == "" {
		return r.Resource + " " + r.Name
	}
	return r.Resource + " " + r.Namespace + "/" + r.Name
}

// DiffPrinter prints objects that differ.
type DiffPrinter struct {
	Documents
	Out     *Output
	Unified bool
	Shown   int // number of printed objects
}

// Object prints how an object differs.
func (p *DiffPrinter) Object(d *ObjectDifference) error {
	p.Shown++
	text, look := "", map[string]Style{"created": Added, "deleted": Removed}[d.Change]
	if look == plain {
		look = Altered
	}
	switch {
	case p.Format == "name":
		text = ResourceName(d.GVK(), d.Object.Name) + "\n"
	case p.Format != "":
		return p.Add(d)
	case p.Unified:
		unified, err := unifiedDifference(d)
		if err != nil {
			return err
		}
		text = p.Out.colorLines("", unified)
	default:
		if p.Shown == 1 {
			text = p.Out.Paint(Faint, fmt.Sprintf("From revision %d to %d:", d.From, d.To)) + "\n"
		}
		note := ""
		if d.Change == "replaced" {
			note = " by another of the same name"
		}
		text += p.Out.Paint(look, d.Change+" "+d.Object.String()+note) + "\n" + p.Out.Differences("    ", d.Hidden.Differences(d.Difference))
	}
	_, err := io.WriteString(p.Out, text)
	return err
}

// End prints the end of a document.
func (p *DiffPrinter) End() error {
	if p.Format == "json" || p.Format == "yaml" {
		return p.Documents.End()
	}
	return nil
}

// unifiedDifference compares two objects as YAML, line by line, in the format of diff -u.
func unifiedDifference(d *ObjectDifference) (string, error) {
	u := difflib.UnifiedDiff{Context: 3}
	for _, side := range []struct {
		name     *string
		lines    *[]string
		content  map[string]any
		revision uint64
		other    map[string]any
		when     string
	}{{&u.FromFile, &u.A, d.Before, d.From, d.After, "before"}, {&u.ToFile, &u.B, d.After, d.To, d.Before, "after"}} {
		if *side.name = "/dev/null"; side.content == nil {
			continue
		}
		text, err := yaml.Marshal(d.Hidden.Content(side.content, side.other, side.when))
		if err != nil {
			return "", err
		}
		*side.name = fmt.Sprintf("%s at %d", d.Object.String(), side.revision)
		*side.lines = splitLines(string(text))
	}
	return difflib.GetUnifiedDiffString(u)
}

// ResourceName returns an object's name in the form of kubectl's -o name.
func ResourceName(kind schema.GroupVersionKind, name string) string {
	return strings.ToLower(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}.String()) + "/" + name
}
