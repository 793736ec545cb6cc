package restore

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/difference"
)

// View is an item as programs read it.
type View struct {
	Action      Action             `json:"action"`
	Group       string             `json:"group,omitempty"`
	Version     string             `json:"version"`
	Kind        string             `json:"kind"`
	Resource    string             `json:"resource"`
	Namespace   string             `json:"namespace,omitempty"`
	Name        string             `json:"name"`
	Differences []difference.Entry `json:"differences,omitempty"`
	Notes       []string           `json:"notes,omitempty"`
	Missing     []string           `json:"missing,omitempty"`
	Refused     string             `json:"refused,omitempty"`
	Revisions   []string           `json:"revisions,omitempty"`
	Failed      string             `json:"failed,omitempty"`
}

// View shows the item, without what is secret.
func (i *Item) View() View {
	v := View{
		Action: i.Action, Group: i.Kind.Group, Version: i.Kind.Version, Kind: i.Kind.Kind, Resource: i.Kind.Resource,
		Namespace: i.Namespace, Name: i.Name, Notes: i.Notes, Missing: i.Missing, Refused: i.Refused, Revisions: i.Revisions, Failed: i.Failed,
	}
	if i.Action != Update {
		return v
	}
	for _, d := range i.Differences {
		if i.secret(d.Path) {
			d.From, d.To = hide(d.From), hide(d.To)
		}
		v.Differences = append(v.Differences, d)
	}
	return v
}

func (i *Item) secret(path string) bool { return IsSecret(i.Kind.GroupKind(), path) }

// IsSecret tells whether what is at a path of an object is not to be shown on a screen: what a
// Secret holds, also where kubectl has noted it down.
func IsSecret(kind schema.GroupKind, path string) bool {
	return kind.Group == "" && kind.Kind == "Secret" &&
		(path == "data" || strings.HasPrefix(path, "data.") || strings.HasPrefix(path, "data[") || strings.HasPrefix(path, "metadata.annotations"))
}

// Hidden stands for what is not shown.
const Hidden = "(hidden)"

func hide(value any) any {
	if value == nil {
		return nil
	}
	return Hidden
}

// show is a value at a path, on a line.
func (i *Item) show(path string, value any) string {
	if i.secret(path) {
		return Hidden
	}
	return Show(value)
}

// Show is a value on a line.
func Show(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(b)
}
