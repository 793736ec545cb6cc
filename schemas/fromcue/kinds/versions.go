package kinds

import (
	"fmt"
	"slices"

	"stele.dev/stele/schemas"
)

// checkTogether checks the versions of a kind against each other. One must be served, and those that are not converted must
// have the same form.
func (r reader) checkTogether(k *schemas.Kind, versions section) {
	if len(k.Versions) > 0 && !slices.ContainsFunc(k.Versions, func(v schemas.Version) bool { return v.Served }) {
		at, _ := versions.get(k.Versions[0].Name)
		served, _ := at.get("served")
		served.refuse("no version is served", "remove served: false, or the kind")
	}
	r.checkHub(k, versions)
}

// checkHub checks that the versions without a conversion have the same form, to which the others are converted.
func (r reader) checkHub(k *schemas.Kind, versions section) {
	hub := k.Hub()
	if hub == nil {
		if len(k.Versions) > 0 {
			at, _ := versions.get(k.Versions[0].Name)
			conversion, _ := at.get("conversion")
			conversion.refuse("every version has a conversion, and none is what the others are converted to", "leave out the conversion of the version that the others are converted to, such as the newest one")
		}
		return
	}
	for i := range k.Versions {
		v := &k.Versions[i]
		if hub.Schema == nil || v.Schema == nil || v.Conversion != nil {
			continue // already reported, or converted
		}
		path, differ := schemas.Difference(hub.Schema, v.Schema)
		if !differ {
			continue
		}
		if path != "" {
			path = " at " + path
		}
		at, _ := versions.get(v.Name)
		at.refuse(fmt.Sprintf("the schemas of %s and %s differ%s, and nothing says how objects are converted", hub.Name, v.Name, path),
			fmt.Sprintf("say it in the older of them: versions: %s: conversion: [{rename: {from: …, to: …}}]; or give both the same #schema", v.Name))
	}
}
