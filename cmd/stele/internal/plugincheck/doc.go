// Package plugincheck has the commands that check, test and measure authorizer plugins.
package plugincheck
