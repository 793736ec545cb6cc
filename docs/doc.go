// Package docs has the documentation of stele, as Markdown. It has no code: its tests check the pages against the code, and the
// imports and sizes of all packages.
package docs

//go:generate go run ../.ci/recording INCIDENT.md incident.svg
