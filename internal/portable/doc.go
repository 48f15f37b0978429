// Package portable holds a test and nothing else: the module must compile for systems that its tests do not run on.
package portable
