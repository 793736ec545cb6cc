// Package flowcontrol shows the flow schemas and priority levels in force as objects of flowcontrol.apiserver.k8s.io/v1, so
// that Kubernetes clients find them. They are rendered from the policy in force (package rendered), with those that every
// policy has.
package flowcontrol
