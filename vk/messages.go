package vk

/*
#include "cvk.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Severity is a VkDebugUtilsMessageSeverityFlagBitsEXT.
type Severity uint32

// The severities that are reported.
const (
	SeverityWarning Severity = 0x100
	SeverityError   Severity = 0x1000
)

// String returns warning or error.
func (s Severity) String() string {
	switch s {
	case SeverityWarning:
		return "warning"
	case SeverityError:
		return "error"
	}
	return fmt.Sprintf("severity(%#x)", uint32(s))
}

// MessageTypes is a VkDebugUtilsMessageTypeFlagsEXT.
type MessageTypes uint32

// The types that are reported.
const (
	MessageValidation  MessageTypes = 2
	MessagePerformance MessageTypes = 4
)

// Message is one message of the validation layers.
type Message struct {
	Severity Severity
	Types    MessageTypes
	ID       string // for example VUID-vkCmdDispatch-None-08114
	Number   int32
	Text     string
}

// String returns severity, id and text.
func (m Message) String() string { return fmt.Sprintf("%v %s: %s", m.Severity, m.ID, m.Text) }

// C knows a receiver of messages by number, never by pointer.
var (
	receivers    sync.Map // uint64 → receiver
	lastReceiver atomic.Uint64
)

// receiver takes a message, and what the module declares that the thread makes a pipeline of meanwhile.
type receiver func(Message, declares)

func addReceiver(f receiver) uint64 {
	id := lastReceiver.Add(1)
	receivers.Store(id, f)
	return id
}

//export vkattnMessage
func vkattnMessage(id C.uint64_t, severity, types C.uint32_t, name *C.char, number C.int32_t, text *C.char, module C.uint32_t) {
	m := Message{Severity: Severity(severity), Types: MessageTypes(types), Number: int32(number)}
	if name != nil {
		m.ID = C.GoString(name)
	}
	if text != nil {
		m.Text = C.GoString(text)
	}
	deliver(uint64(id), m, declares(module))
}

// deliver hands a message to its receiver, if that is still there.
func deliver(id uint64, m Message, module declares) {
	if f, ok := receivers.Load(id); ok {
		f.(receiver)(m, module)
	}
}
