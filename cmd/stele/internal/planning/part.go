package planning

import (
	"path"
	"path/filepath"

	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/policy/plan"
)

// Part is the plan of one bundle.
type Part struct {
	*plan.Plan
	// Name is the folder of the bundle, as the user wrote it.
	Name string
	// Package is the folder of the bundle in its CUE module.
	Package string
	// Prefix is the folder of the CUE module in its repository, for formats that name files from the root of the
	// repository. It is empty or ends with a slash.
	Prefix string
	// Links is the address of the files of the repository, to which comments link; empty if it is not known.
	Links string
	// Hidden is the number of findings that --only hides.
	Hidden int
	// Unused are the acceptances that did not count.
	Unused plan.Unused
}

// acceptFile is where acceptances of the bundle belong.
func (p *Part) acceptFile() string { return path.Join(filepath.ToSlash(p.Name), "accept.cue") }

// planList is the document of several plans.
type planList struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Items      []*plan.Plan `json:"items"`
}

// document is the JSON of plans: a Plan, or a PlanList of several.
func document(parts []Part) any {
	if len(parts) == 1 {
		return parts[0].Plan
	}
	list := planList{APIVersion: client.DocumentVersion, Kind: "PlanList", Items: []*plan.Plan{}}
	for i := range parts {
		list.Items = append(list.Items, parts[i].Plan)
	}
	return list
}
